"""Pictures of rows beyond the bars. One file each."""
