"""Publishing: snapshots of what is counted (`publisher`), and the method that suits each query (`recommender`)."""
