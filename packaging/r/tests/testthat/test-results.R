skip_if_not(eigenveil_available(), "the program eigenveil was not found")

rows <- local({
  set.seed(1)
  frame <- as.data.frame(matrix(rnorm(4000 * 4), 4000) %*% diag(c(9, 5, 1, 1)))
  names(frame) <- c("height", "weight at \u00e4", "c", "d")
  frame
})
# Sums over 4,000 rows at epsilon 20: both directions are far above the noise
fit <- eigenveil_fit(rows, epsilon = 20, components = 2, one_row_per_person = TRUE,
                     no_ledger = TRUE)

test_that("a fit is what its folder says", {
  expect_s3_class(fit, "eigenveil")
  expect_equal(dim(fit$loadings), c(4, 2))
  expect_equal(rownames(fit$loadings), names(rows))
  expect_equal(fit$values$usable, c(TRUE, TRUE))
  expect_gt(abs(fit$loadings["height", "PC1"]), 0.9)
  expect_lte(fit$values$guarantee$epsilon, 20)
  expect_equal(eigenveil_read(fit$folder), fit)
  expect_output(print(fit), "adding\\s+or\\s+removing\\s+one\\s+row")
  expect_output(print(fit), "PC2")
})

test_that("scores are those of the loadings, by name", {
  scores <- predict(fit, rows[4:1])
  expect_named(scores, c("PC1", "PC2"))
  by_hand <- sweep(as.matrix(rows), 2, fit$values$mean) %*% fit$loadings
  expect_equal(as.matrix(scores), unname(by_hand), ignore_attr = TRUE, tolerance = 1e-9)
})

test_that("a certificate holds, and one that was changed does not", {
  found <- eigenveil_certify(fit)
  expect_true(found$holds)
  expect_equal(found$guarantee$epsilon, fit$values$guarantee$epsilon)
  expect_output(print(found), "^VALID")
  changed <- tempfile("changed-")
  dir.create(changed)
  file.copy(list.files(fit$folder, full.names = TRUE), changed)
  path <- file.path(changed, "certificate.json")
  writeLines(sub('"counted": false', '"counted": true', readLines(path)), path)
  expect_false(eigenveil_certify(changed)$holds)
})

test_that("a plan has a line for each mechanism, and reads nothing", {
  plan <- eigenveil_plan(4, 4000, epsilon = 1, components = 2)
  expect_true(all(c("mechanism", "captured_energy") %in% names(plan)))
  expect_gt(min(plan$captured_energy), 0)
})

test_that("what follows from a covariance is derived", {
  covariance <- eigenveil_fit(rows, task = "covariance", epsilon = 20, no_ledger = TRUE,
                              one_row_per_person = TRUE)
  expect_null(covariance$loadings)
  found <- eigenveil_derive(covariance, "pca", components = 2)
  expect_equal(found$values$guarantee$epsilon, covariance$values$guarantee$epsilon)
  expect_error(plot(covariance), "Only principal components")
})

test_that("pictures are drawn", {
  path <- tempfile(fileext = ".png")
  grDevices::png(path)
  plot(fit)
  plot(fit, "loadings", component = 2)
  grDevices::dev.off()
  expect_gt(file.size(path), 0)
  expect_error(plot(fit, "loadings", component = 3), "from 1 to 2")
})

test_that("errors are conditions with the exit status and the hint", {
  found <- expect_error(
    eigenveil_fit(rows, epsilon = -1, one_row_per_person = TRUE, no_ledger = TRUE),
    class = "eigenveil_privacy_error"
  )
  expect_equal(found$status, 4)
  expect_match(found$reason, "epsilon")
  texts <- expect_error(
    eigenveil_fit(cbind(rows, f = "x"), one_row_per_person = TRUE, no_ledger = TRUE),
    class = "eigenveil_data_error"
  )
  expect_match(texts$reason, "^The data frame: column 'f' is of texts")
  expect_error(eigenveil_fit(rows, epsilonn = 1), class = "eigenveil_usage_error")
  expect_error(eigenveil_read("no-such-folder"), class = "eigenveil_output_error")
  expect_error(eigenveil_fit(rows, no_ledger = TRUE, out = fit$folder, one_row_per_person = TRUE),
               class = "eigenveil_output_error")
})
