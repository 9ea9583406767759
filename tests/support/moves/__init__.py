"""What tests of moves on real servers share."""
