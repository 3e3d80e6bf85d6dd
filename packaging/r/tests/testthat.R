library(testthat)
library(eigenveil)

test_check("eigenveil")
