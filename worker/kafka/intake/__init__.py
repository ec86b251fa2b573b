"""The intake topics: membership, reading, releases and deletion."""
