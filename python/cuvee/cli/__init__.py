"""The command `cuvee`: one module per subcommand, each of which only parses arguments and prints."""

from __future__ import annotations

from collections.abc import Sequence

INTERRUPTED = 130  # 128 + SIGINT, as shells have it


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code.

    Args:
        arguments: what stands after `cuvee`; None takes them from `sys.argv`.
    """
    try:
        from .command import run  # here, so that an interrupt while it is imported ends as quietly as any other

        return run(arguments)
    except KeyboardInterrupt:
        return INTERRUPTED
