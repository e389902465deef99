"""What is made of finished frames: records, an annotated video, a summary, traces."""
