"""The S3 room: wire rules in pure files, the domain above them, one Resource on top."""
