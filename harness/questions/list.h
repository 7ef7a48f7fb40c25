#pragma once
// Every question, one line each, in the order in which they are listed; a config of one seed that names none asks
// the first.
//
// harness/questions/NAME/ holds both halves of a question: plan.cpp what it asks of a config (QuestionPlan),
// judge.cpp what its answer is made of (QuestionJudge). Two tables are made from this one list, table.cpp and
// judges.cpp, because lockstep-rank links the planner: what judges is no part of it, or every sentence that is
// reworded would make it another build, and train all runs anew.

#define LOCKSTEP_QUESTIONS(EACH) \
  EACH(mechanism)                \
  EACH(outcome)                  \
  EACH(certificate)              \
  EACH(detection)                \
  EACH(claims)                   \
  EACH(calibration)
