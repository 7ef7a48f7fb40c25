// A plugin of another build.

extern "C" {
extern const char* const lockstep_gpu_plugin_stamp;
const char* const lockstep_gpu_plugin_stamp = "lockstep-gpu 0, LibTorch 1.0.0";
void lockstep_gpu_backend();
void lockstep_gpu_backend() {}
}
