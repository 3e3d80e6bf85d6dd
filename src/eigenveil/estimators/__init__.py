"""scikit-learn estimators over private moments."""
