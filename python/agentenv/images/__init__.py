"""What a sandbox is made from: names resolved to images that can be launched, and how the images are built."""
