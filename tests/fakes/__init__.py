"""What many tests talk to: fakes of vendors' servers, engines in one line, random logs."""
