"""Where live pictures come from: a thread per camera that reads, waits, connects again, and says so."""
