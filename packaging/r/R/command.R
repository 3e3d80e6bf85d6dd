# How the command line is run: its JSON is read, and its errors become conditions of R.

.statuses <- c(
  "2" = "usage", "3" = "data", "4" = "privacy", "5" = "budget", "6" = "protocol",
  "7" = "output", "70" = "defect", "127" = "missing", "130" = "interrupt"
)

.command <- function() {
  found <- getOption("eigenveil.command", Sys.getenv("EIGENVEIL_COMMAND", "eigenveil"))
  if (length(found) == 1 && !file.exists(found)) strsplit(found, " +")[[1]] else found
}

#' Is the command line there?
#'
#' The package runs the program `eigenveil`, which `pip install eigenveil` brings. Where it is not
#' on the path, name it: `options(eigenveil.command = c("python3", "-m", "eigenveil"))`, or the
#' environment variable `EIGENVEIL_COMMAND`, words with blanks between.
#'
#' @return `TRUE` or `FALSE`.
#' @examples
#' eigenveil_available()
#' @export
eigenveil_available <- function() {
  !inherits(try(.run("--version"), silent = TRUE), "try-error")
}

# What it prints, as text; `allowed` are exit statuses that are no errors.
.run <- function(..., allowed = 0) {
  words <- c(.command(), ...)
  out <- tempfile("eigenveil-out-")
  err <- tempfile("eigenveil-err-")
  before <- Sys.getenv("LD_LIBRARY_PATH", NA)
  on.exit({
    unlink(c(out, err))
    if (!is.na(before)) Sys.setenv(LD_LIBRARY_PATH = before)
  })
  if (!is.na(before)) Sys.setenv(LD_LIBRARY_PATH = .without_own(before))
  status <- suppressWarnings(tryCatch(
    system2(words[1], shQuote(words[-1]), stdout = out, stderr = err),
    error = function(problem) 127
  ))
  said <- if (file.exists(err)) readLines(err, encoding = "UTF-8", warn = FALSE) else character()
  if (!status %in% allowed) .stop_with(status, said, words[1])
  for (line in .after("warning: ", said)) warning(line, call. = FALSE)
  for (line in .after("note: ", said)) message(line)
  paste(readLines(out, encoding = "UTF-8", warn = FALSE), collapse = "\n")
}

# R puts its own and the system's folders of libraries first, and another Python finds libraries
# there that are not its own. The loader looks into the system's anyhow; others stay.
.without_own <- function(paths, own = R.home("lib")) {
  found <- strsplit(paths, ":", fixed = TRUE)[[1]]
  usual <- grepl("^(/usr|/usr/local)?/lib(64|/[^/]+)?$", found) | grepl("/jvm/", found)
  paste(found[!usual & found != own], collapse = ":")
}

.after <- function(start, lines) substring(lines[startsWith(lines, start)], nchar(start) + 1)

.stop_with <- function(status, said, command) {
  text <- .after("error: ", said)
  hint <- .after("hint: ", said)
  kind <- .statuses[as.character(status)]
  if (status == 127) {
    text <- paste0("The program '", command, "' was not found.")
    hint <- "pip install eigenveil, or say where it is: ?eigenveil_available."
  }
  if (!length(text)) text <- paste(c(utils::tail(said, 3), "No reason was given."), collapse = " ")
  stop(structure(
    class = c(if (!is.na(kind)) paste0("eigenveil_", kind, "_error"),
              "eigenveil_error", "error", "condition"),
    list(message = paste(c(text, hint), collapse = " "), call = NULL, status = status,
         reason = paste(text, collapse = " "), hint = paste(hint, collapse = " "))
  ))
}

# list(epsilon = 3, plots = FALSE) as --epsilon 3 --no-plots
.options <- function(given) {
  if (length(given) && (is.null(names(given)) || any(names(given) == ""))) {
    stop("Options have names, such as epsilon = 3.", call. = FALSE)
  }
  as.character(unlist(lapply(names(given), function(name) {
    value <- given[[name]]
    word <- gsub("_", "-", name)
    if (is.null(value)) return(NULL)
    if (isTRUE(value)) return(paste0("--", word))
    if (isFALSE(value)) return(paste0("--no-", word))
    if (is.list(value)) return(lapply(value, function(each) c(paste0("--", word), .text(each))))
    c(paste0("--", word), .text(value))
  })))
}

.text <- function(value) {
  if (is.numeric(value)) {
    value <- vapply(value, format, "", digits = 15, scientific = FALSE, trim = TRUE)
  }
  paste(value, collapse = ",")
}

# Calls `use` with files of the rows: those named, or one of a frame that is removed again.
.with_rows <- function(data, use) {
  if (is.character(data)) return(use(data))
  if (!is.data.frame(data) && !is.matrix(data)) {
    stop("Rows are a data frame, a matrix, or paths of files.", call. = FALSE)
  }
  data <- as.data.frame(data)
  path <- tempfile("rows-", fileext = ".csv")
  on.exit(unlink(path))
  utils::write.csv(data, path, row.names = FALSE, na = "", fileEncoding = "UTF-8")
  tryCatch(use(path), eigenveil_error = function(refused) {
    for (name in c("message", "reason", "hint")) {
      refused[[name]] <- gsub(path, "The data frame", refused[[name]], fixed = TRUE)
    }
    stop(refused)
  })
}
