"""Publishing: snapshots of what is counted, and the method that suits each query."""
