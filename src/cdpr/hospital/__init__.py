"""The synthetic hospital: a known model of patients, written as raw files, with its exact posterior."""
