"""What is written into the pages out of the code, and what is checked of all pages."""
