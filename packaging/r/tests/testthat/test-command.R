# Of the command line's words alone: no program is run.

test_that("options are those of the command line", {
  expect_equal(
    .options(list(epsilon = 3, one_row_per_person = TRUE, header = FALSE, unit = NULL,
                  columns = c("a", "b c"), delta = 1e-6, rows = 1e5, na = list(99, "x"))),
    c("--epsilon", "3", "--one-row-per-person", "--no-header", "--columns", "a,b c",
      "--delta", "0.000001", "--rows", "100000", "--na", "99", "--na", "x")
  )
  expect_error(.options(list(3)), "have names")
  expect_equal(.options(list()), character())
})

test_that("the command is named by an option or a variable", {
  old <- options(eigenveil.command = "python3 -m eigenveil")
  on.exit(options(old))
  expect_equal(.command(), c("python3", "-m", "eigenveil"))
  options(eigenveil.command = c("C:/Program Files/python", "-m", "eigenveil"))
  expect_equal(.command()[1], "C:/Program Files/python")
})

test_that("a program that is not there is said to be missing", {
  old <- options(eigenveil.command = "no-such-program-of-this-name")
  on.exit(options(old))
  expect_error(.run("--version"), class = "eigenveil_missing_error")
  expect_false(eigenveil_available())
})

test_that("rows are frames, matrices or paths, and no file of them is left", {
  seen <- NULL
  lines <- .with_rows(data.frame(a = c(1, NA), b = c("x, y", "\u00e4")), function(path) {
    seen <<- path
    readLines(path, encoding = "UTF-8")
  })
  expect_equal(lines, c('"a","b"', '1,"x, y"', ',"\u00e4"'))
  expect_false(file.exists(seen))
  expect_error(.with_rows(data.frame(a = 1), function(path) {
    seen <<- path
    stop("refused")
  }), "refused")
  expect_false(file.exists(seen))
  expect_error(.with_rows(list(1), identity), "data frame")
  expect_equal(.with_rows("rows.parquet", identity), "rows.parquet")
})

test_that("the program finds its own libraries, and those that a user names", {
  paths <- "/usr/lib/R/lib:/usr/lib/x86_64-linux-gnu:/usr/lib/jvm/java/lib/server:/opt/my/lib"
  expect_equal(.without_own(paths, "/usr/lib/R/lib"), "/opt/my/lib")
  expect_equal(.without_own("", "/usr/lib/R/lib"), "")
})
