// Exists so that the precompiled headers of rooms without LibTorch belong to a library (CMakeLists.txt).
