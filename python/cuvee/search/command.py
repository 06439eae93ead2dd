"""What `cuvee search` does around a search: where it is kept, and what it leaves in its folder."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from ..cache import write_atomically
from ..errors import CuveeError, StateError
from ..manifest import Manifest, load
from ..manifest.outputs import check_output, code_file, file_stem
from .from_manifest import ManifestSearch
from .launch import Desk, Watch, make_runs
from .learned import check_learnable, write_learned
from .plan import SearchPlan
from .receipt import Receipt
from .storage import default_storage, without_password
from .trials import Slot

RECEIPT, REPORT = "receipt.json", "report.html"
OURS = {"format", "method", "names", "target_weights", "runs"}  # some of what every receipt of a search has


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """A search over a manifest, with its folder.

    Args:
        search: what is searched, and how.
        workers: processes on this machine.
        storage: address of its storage; None is a SQLite file in the folder.
        study: its name there; None is the name of the manifest's file.
        output_dir: the folder; None is `runs/search-NAME`, with the study's name as a file may be called.
        write: manifest to write with the learned weights; None writes none.

    Raises:
        CuveeError: a file cannot be written, or must not be.
    """

    search: ManifestSearch
    workers: int = 1
    storage: str | None = None
    study: str | None = None
    output_dir: Path | None = None
    write: Path | None = None
    manifest: Manifest = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "manifest", load(self.search.manifest))
        if self.folder.exists() and not self.folder.is_dir():
            raise CuveeError(f"--output-dir must be a folder, but got {str(self.folder)!r}")
        self._kept()
        if self.write is not None:
            check_learnable(self.manifest)
            self._check_write(self.write)

    def _check_write(self, write: Path) -> None:
        """Raise if writing the manifest would replace what is read, or what the search leaves."""
        if write.is_dir():
            raise CuveeError(f"--write must be a file, but got the folder {str(write)!r}")
        code = {"the score": self.search.score, "the loader": self.search.loader}
        others = {what: code_file(given) for what, given in code.items() if given is not None}
        others |= {"the receipt": self.folder / RECEIPT, "the report": self.folder / REPORT}
        check_output(
            write,
            "--write",
            self.manifest,
            others | {"the manifest": self.search.manifest, "the storage": Path(self.place)},
        )

    @property
    def folder(self) -> Path:
        """Folder of the search."""
        return self.output_dir or Path("runs", f"search-{file_stem(self.name)}")

    @property
    def name(self) -> str:
        """Name of the study."""
        return self.study or self.search.manifest.stem

    @property
    def desk(self) -> Desk:
        """Where the search is kept."""
        return Desk(storage=self.storage or default_storage(self.folder), study=self.name)

    @property
    def place(self) -> str:
        """Where the search is kept, as people read it: its file, or the address without a password."""
        return without_password(self.desk.storage).removeprefix("sqlite:///").removeprefix("journal:")

    def plan(self) -> SearchPlan:
        """Open the sources and return the search."""
        return self.search.plan()

    def run(self, plan: SearchPlan, watch: Watch | None = None) -> Sequence[Slot]:
        """Work on the search until it is finished, and return its runs."""
        self.check_folder(plan)
        self.folder.mkdir(parents=True, exist_ok=True)
        return make_runs(plan, self.desk, workers=self.workers, watch=watch)

    def check_folder(self, plan: SearchPlan) -> None:
        """Raise if the folder has the receipt of another search, which the one of this would replace.

        Raises:
            StateError: naming what the other was of, or the option by which a study differs that is there.
        """
        kept = self._kept()
        if kept is None:
            return
        ours = {"names": list(plan.space.names), "fingerprint": str(plan.about.get("fingerprint", ""))}
        for what, said in ours.items():
            if kept.get(what) != said:
                plan.open(self.desk.storage, self.name)  # a study that is there says itself what differs
                raise StateError(
                    f"--output-dir must not hold the {RECEIPT} of another search, but got {str(self.folder)!r} with "
                    f"{what} {kept.get(what)!r:.200} where this one has {said!r:.200}; name another folder"
                )

    def _kept(self) -> dict[str, Any] | None:
        """Return the receipt that the folder has, None if there is none; raise if it is of something else."""
        path = self.folder / RECEIPT
        if not path.exists():
            return None
        try:
            document = json.loads(path.read_bytes())
        except (OSError, ValueError, RecursionError):
            document = None
        if not (isinstance(document, dict) and document.keys() >= OURS):
            raise StateError(
                f"--output-dir must not hold the {RECEIPT} of something else, but got {str(self.folder)!r}; name "
                "another folder"
            )
        return document

    def runs(self, plan: SearchPlan) -> Sequence[Slot]:
        """Return the runs that were made so far, or are to be made next."""
        return plan.open(self.desk.storage, self.name).slots()

    def keep(self, plan: SearchPlan, receipt: Receipt) -> dict[str, Path]:
        """Write receipt, report and manifest; return where they are, by what they are."""
        files = {"receipt": self.folder / RECEIPT}
        write_atomically(files["receipt"], receipt.to_json().encode())
        if find_spec("plotly") is not None:  # which may not be installed where a search runs
            from .law_figures import law_pictures
            from .page import write_search_report

            laws = law_pictures(receipt, plan.extrapolation)
            files["report"] = write_search_report(receipt, self.folder / REPORT, title=self.name, laws=laws)
        if self.write is not None:
            weights = dict(zip(receipt.names, receipt.weights, strict=True))
            unit = "tokens" if self.search.score is None else None  # the proxy's shares are of tokens
            files["manifest"] = write_learned(self.manifest, weights, self.write, unit=unit)
        return files
