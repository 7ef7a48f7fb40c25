#pragma once
// Every question, one line each, in the order in which they are listed; a config of one seed that names none asks
// the first.
//
// harness/verdict/questions/NAME/ holds both halves of a question: plan.cpp what it asks of a config (QuestionPlan),
// judge.cpp what its answer is made of (QuestionJudge). Two tables are made from this one list, table.cpp and
// judges.cpp, because lockstep-rank links the planner: the judging half is no part of it, or every reworded
// sentence would make another build of it, and all runs would train anew.

#define LOCKSTEP_QUESTIONS(EACH) \
  EACH(mechanism)                \
  EACH(outcome)                  \
  EACH(certificate)              \
  EACH(detection)
