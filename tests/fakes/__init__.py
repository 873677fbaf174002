"""Parts that many tests use: fakes of vendors' servers, engines in one line, random logs."""
