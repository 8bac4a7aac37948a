"""Is speculative decoding worth it on a file of prompts? Each prompt is raced once; the verdict is over all of them."""
