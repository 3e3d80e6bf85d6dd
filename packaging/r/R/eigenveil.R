#' Fit a private model to a table
#'
#' A data frame is written to a temporary file, which is removed again.
#'
#' @param data A data frame, a matrix with column names, or paths of files.
#' @param ... Options of `eigenveil fit`, by name, `_` for `-`: `epsilon = 1`, `delta = 1e-6`,
#'   `components = 3`, `unit = "patient_id"` or `one_row_per_person = TRUE`, `scale = "private"`,
#'   `task = "covariance"`, `ledger = "visits.ledger"`. `FALSE` stands for `--no-NAME`; a vector's
#'   entries are joined by commas; an option that repeats is a list.
#' @param out Folder of the result; by default one that is gone when R ends.
#' @return A result, as of [eigenveil_read()].
#' @section Errors: What the command line refuses is an error of class `eigenveil_error`, and of
#'   one of `eigenveil_data_error`, `eigenveil_privacy_error`, `eigenveil_budget_error`,
#'   `eigenveil_output_error`, `eigenveil_usage_error`, with `status` (the exit status), `reason`
#'   and `hint`.
#' @examples
#' if (eigenveil_available()) {
#'   rows <- data.frame(a = rnorm(2000, sd = 9), b = rnorm(2000, sd = 4), c = rnorm(2000))
#'   fit <- eigenveil_fit(rows, epsilon = 3, components = 2, one_row_per_person = TRUE,
#'                        no_ledger = TRUE)
#'   print(fit)
#' }
#' @export
eigenveil_fit <- function(data, ..., out = tempfile("eigenveil-result-")) {
  options <- c(list(plots = FALSE), list(...))
  options <- options[!duplicated(names(options), fromLast = TRUE)]
  .with_rows(data, function(files) {
    .run("fit", files, .options(options), "--out", out, "--json")
  })
  eigenveil_read(out)
}

#' Read a result's folder
#'
#' @param result The folder that `eigenveil fit` wrote.
#' @return An object of class `eigenveil`: a list of `folder`; `values`, all that the result has
#'   (`components`, `explained_variance`, `usable`, `guarantee`, ...; `NA` is hidden by noise);
#'   and, of principal components, `loadings`, a matrix of features by components.
#' @seealso [predict.eigenveil()], [plot.eigenveil()], [eigenveil_certify()]
#' @export
eigenveil_read <- function(result) {
  values <- jsonlite::fromJSON(.run("show", result, "--json"))
  found <- list(folder = normalizePath(result), values = values)
  if (.is_pca(values)) {
    found$loadings <- t(values$components)
    features <- values$features
    if (is.null(features)) features <- seq_len(nrow(found$loadings)) - 1
    dimnames(found$loadings) <- list(features, paste0("PC", seq_len(ncol(found$loadings))))
  }
  structure(found, class = "eigenveil")
}

.is_pca <- function(values) {
  is.matrix(values$components) && length(values$explained_variance) == nrow(values$components)
}

#' What a fit would give
#'
#' No row is read, and nothing is spent.
#'
#' @param features,rows Number of columns, and of rows (of units, with `unit`).
#' @param ... Options of `eigenveil plan`, by name: `epsilon = 1`, `components = 3`.
#' @return For principal components a data frame with a line for each mechanism:
#'   `captured_energy`, and `shows_nothing.probability`, how often a fit would show nothing. For
#'   other tasks a list.
#' @export
eigenveil_plan <- function(features, rows, ...) {
  given <- .options(c(list(features = features, rows = rows), list(...)))
  found <- jsonlite::fromJSON(.run("plan", given, "--json"), flatten = TRUE)
  if (is.data.frame(found)) found[!startsWith(names(found), "plan.")] else found
}

#' Check a result's certificate
#'
#' @param result A result, or its folder.
#' @param ... Options of `eigenveil certify`, by name: `registrar = "4f1c..."`.
#' @return An object of class `eigenveil_certificate`: a list with `holds`, `explanation`,
#'   `guarantee`, `views`, `proofs` and `checklist`, the questions of NIST SP 800-226. A guarantee
#'   that does not hold is no error.
#' @export
eigenveil_certify <- function(result, ...) {
  text <- .run("certify", .folder(result), .options(list(...)), "--json", allowed = c(0, 8))
  structure(jsonlite::fromJSON(text), class = "eigenveil_certificate")
}

.folder <- function(result) if (inherits(result, "eigenveil")) result$folder else result

#' @rdname eigenveil_certify
#' @param x What `eigenveil_certify` returned.
#' @export
print.eigenveil_certificate <- function(x, ...) {
  cat(if (x$holds) "VALID" else "NOT VALID", "\n", x$explanation, "\n", sep = "")
  invisible(x)
}

#' Derive a model from a covariance
#'
#' No row is read, and nothing is spent.
#'
#' @param result A result of `task = "covariance"`, or its folder.
#' @param kind One of "pca", "factors", "partial-correlation", "regression", "cca",
#'   "discriminant".
#' @param ... Options of `eigenveil derive`, by name: `target = "age"`.
#' @param out Folder of the result; by default one that is gone when R ends.
#' @return A result, as of [eigenveil_read()].
#' @export
eigenveil_derive <- function(result, kind, ..., out = tempfile("eigenveil-derived-")) {
  .run("derive", .folder(result), kind, "--no-plots", .options(list(...)), "--out", out, "--json")
  eigenveil_read(out)
}

#' Scores of new rows
#'
#' They show rows: keep them as private as the rows.
#'
#' @param object A result.
#' @param newdata Rows with the same columns: a data frame, a matrix, or paths of files.
#' @param ... Options of `eigenveil transform`, by name.
#' @return A data frame of a line for each row.
#' @export
predict.eigenveil <- function(object, newdata, ...) {
  out <- tempfile("scores-", fileext = ".csv")
  on.exit(unlink(out))
  .with_rows(newdata, function(files) {
    .run("transform", object$folder, files, .options(list(...)), "--out", out, "--json")
  })
  utils::read.csv(out, check.names = FALSE)
}

#' @rdname eigenveil_read
#' @param x A result.
#' @param ... Not used.
#' @export
print.eigenveil <- function(x, ...) {
  values <- x$values
  cat("eigenveil:", values$task, "\n")
  if (!is.null(x$loadings)) {
    share <- 100 * values$explained_variance_ratio
    print(data.frame(
      component = colnames(x$loadings), "explained %" = round(share, 1),
      "above noise" = ifelse(values$usable, "yes", "NO"), check.names = FALSE
    ), row.names = FALSE)
  }
  cat(strwrap(values$guarantee$sentence), sep = "\n")
  invisible(x)
}

#' Draw principal components
#'
#' `"scree"`: explained variance, with a band for what noise alone would show. `"loadings"`: the
#' entries of one component, with their 95 % intervals where it has some.
#'
#' @param x A result of principal components.
#' @param what "scree" or "loadings".
#' @param component The number of the component whose loadings are drawn.
#' @param ... More for [graphics::plot()] or [graphics::barplot()], such as `sub`.
#' @return `x`, invisibly.
#' @importFrom stats predict
#' @export
plot.eigenveil <- function(x, what = c("scree", "loadings"), component = 1, ...) {
  what <- match.arg(what)
  if (is.null(x$loadings)) stop("Only principal components are drawn.", call. = FALSE)
  values <- x$values
  title <- sprintf("epsilon = %.4g at delta = %.3g", values$guarantee$epsilon,
                   values$guarantee$delta)
  if (what == "scree") {
    variance <- replace(values$explained_variance, !values$usable, NA)
    top <- 1.1 * max(variance, values$noise_floor, na.rm = TRUE)
    count <- length(variance)
    hidden <- sum(!values$usable)
    noise <- paste0("what noise alone would show", if (hidden) paste0(" (hides ", hidden, ")"))
    graphics::plot(seq_len(count), variance, type = "n", ylim = c(0, top), xaxt = "n", yaxs = "i",
                   xlim = c(0.5, count + 0.5), xlab = "component", ylab = "explained variance",
                   main = title, ...)
    graphics::rect(0, 0, count + 1, values$noise_floor, col = "grey85", border = NA)
    graphics::points(seq_len(count), variance, type = "b", pch = 19, col = "#2b6cb0")
    graphics::axis(1, seq_len(count))
    graphics::box()
    graphics::legend("topright", c("component", noise), pch = c(19, 15),
                     col = c("#2b6cb0", "grey85"), bty = "n")
    return(invisible(x))
  }
  if (!component %in% seq_len(ncol(x$loadings))) {
    stop("component is a number from 1 to ", ncol(x$loadings), ".", call. = FALSE)
  }
  name <- colnames(x$loadings)[component]
  if (!values$usable[component]) title <- paste0("NOT USABLE: noise hides it. ", title)
  bars <- rev(x$loadings[, component])
  table <- utils::read.csv(file.path(x$folder, "components.csv"), check.names = FALSE)
  ends <- table[intersect(paste(name, c("lower", "upper")), names(table))]
  most <- max(abs(c(bars, unlist(ends))))
  # room for the longest name, which is measured once there is a page
  graphics::plot.new()
  inches <- max(graphics::strwidth(names(bars), "inches", cex = 0.8))
  old <- graphics::par(mai = replace(graphics::par("mai"), 2, inches + 0.3), new = TRUE)
  on.exit(graphics::par(old))
  places <- graphics::barplot(bars, horiz = TRUE, las = 1, xlim = c(-most, most), main = title,
                              xlab = paste("loading of", name), cex.names = 0.8, col = "#2b6cb0",
                              border = NA, ...)
  if (length(ends)) graphics::segments(rev(ends[[1]]), places, rev(ends[[2]]), places, lwd = 2)
  invisible(x)
}
