"""Does mixing online help? Small models trained on suites of real text under every policy, seed by seed."""
