"""Quota as escrow: hard quotas, grants, transfers between regions, recovery budgets."""
