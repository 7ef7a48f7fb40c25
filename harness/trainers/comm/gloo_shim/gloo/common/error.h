#pragma once
// ProcessGroupGloo.hpp includes this header and needs nothing from it.
