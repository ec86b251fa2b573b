"""Privacy declarations, and the privacy loss that they imply."""
