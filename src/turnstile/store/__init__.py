"""The journal on disk."""

from turnstile.store.blobs import Blobs
from turnstile.store.reader import Exported, Reader, RolloutSummary
from turnstile.store.schema import Durability
from turnstile.store.writer import Journal

__all__ = ["Blobs", "Durability", "Exported", "Journal", "Reader", "RolloutSummary"]
