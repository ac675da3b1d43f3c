"""Optional looks inside a trained model: where it attends, and what of position its states show."""
