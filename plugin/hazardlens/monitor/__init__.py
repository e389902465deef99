"""Live sources through a pipeline: fair turns, questions off the detector's path, records as things happen."""
