"""The probe for widths with bit-equal rows on this device, and the choice of a race's widths."""
