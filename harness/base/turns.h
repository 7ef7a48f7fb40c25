#pragma once
// Threads that stand for ranks: they compute in turns, a few at once, so that what a thousand of them keep while they compute is
// never all there together. Who waits for another gives its turn up meanwhile.

#include <semaphore>

namespace lockstep {

class Turns {
 public:
  explicit Turns(int at_once) : free_(at_once) {}
  Turns(const Turns&) = delete;
  Turns& operator=(const Turns&) = delete;

  /// For as long as it lives the calling thread has a turn, but while it has given it up. One a thread.
  class Taken {
   public:
    explicit Taken(Turns& turns);
    ~Taken();
    Taken(const Taken&) = delete;
    Taken& operator=(const Taken&) = delete;

   private:
    Turns& turns_;
  };

  /// To be made around a wait, and before a lock is taken that others need in their turns. Of a thread without a turn: nothing.
  class GivenUp {
   public:
    GivenUp();
    ~GivenUp();
    GivenUp(const GivenUp&) = delete;
    GivenUp& operator=(const GivenUp&) = delete;

   private:
    Turns* const turns_;
  };

 private:
  std::counting_semaphore<> free_;
};

}  // namespace lockstep
