"""The method under the microscope: what its estimates are worth."""
