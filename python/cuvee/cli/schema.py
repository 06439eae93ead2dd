"""`cuvee schema`: the JSON Schema of manifests."""

from __future__ import annotations

from .output import print_json


def schema() -> None:
    """Print the JSON Schema of manifests, for editors and other programs."""
    from cuvee import manifest

    print_json(manifest.json_schema())
