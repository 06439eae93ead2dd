"""The errors a user can cause. Each says `NAME must be RULE, but got VALUE`; each is a ValueError too."""

INSTALL_HF = "install the extra hf: pip install '.[hf]' in a checkout of Cuvée"


class CuveeError(ValueError):
    """Base of all errors of this package that come from what the user gave."""


class ManifestError(CuveeError):
    """A manifest, an inline source or a field of either is wrong."""


class SourceError(CuveeError):
    """A source's data cannot be opened, read, or combined with the others."""


class MixtureError(CuveeError):
    """A mixture's sources or settings contradict each other."""


class PlanError(CuveeError):
    """A plan was asked for something its contract does not allow."""


class StateError(CuveeError):
    """A checkpoint does not belong to the plan or the data it is loaded into."""
