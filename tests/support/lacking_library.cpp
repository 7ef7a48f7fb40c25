// A program that needs planted_library.cpp's library, which stands where the loader does not look.

int planted();

int main() { return planted(); }
