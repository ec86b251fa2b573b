"""Publishing: snapshots of the counts (`publisher`), and the method that suits each query (`recommender`)."""
