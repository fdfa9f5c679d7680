"""The synthetic hospital: a known model of patients, whose records are written as raw files, with its exact
posterior."""
