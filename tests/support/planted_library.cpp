// A library under a name that begins as LibTorch's do.

int planted();
int planted() { return 0; }
