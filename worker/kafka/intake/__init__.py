"""The intake topics: membership, reading, writing of batches, deletion."""
