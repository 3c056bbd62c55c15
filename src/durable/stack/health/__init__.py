"""What is wrong when it is: parts, workflows, regions and disks, each probed and put in words."""
