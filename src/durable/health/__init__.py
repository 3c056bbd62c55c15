"""What keeps a placement from going through: workflows, regions and disks, put in words."""
