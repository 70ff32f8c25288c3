"""What all rooms share: errors, options, files and processes. It knows no other room."""
