#pragma once
// MKL chooses its kernels at its first call.

namespace lockstep {

/// Calls once, from this thread, the functions of MKL that models and losses call, so that its kernels are
/// chosen before threads share them (8 ms). To be called before a process starts threads that compute; a
/// second call does nothing.
///
/// MKL's vector mathematics (log, exp, tanh, sqrt, ...; mkl_vml_serv_cpu_detect in the MKL of LibTorch 2.13)
/// stores the processor's type as it was detected, and a few instructions later that type's row in its table
/// of kernels. A thread that calls between the two takes another kernel for that one call: on a processor
/// with AVX2 one whose last place differs, on one with AVX-512 one that is good to 4 digits. Two threads
/// whose first calls meet did so 58 times in 2 million.
void make_first_calls();

}  // namespace lockstep
