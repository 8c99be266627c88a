/* Sphinx's search, with guides first: a term's page before its definition, and what is about castoff's code last. */
"use strict";

var LATER = {
  "reference/glossary": 0.9,
  "reference/commands": 0.8,
  "reference/templates": 0.5,
  "reference/api/castoff": 0.5,
  "reference/api/castoff.trainers": 0.5,
  "explanation/architecture": 0.3,
};

var Scorer = {
  score: ([page, , , , score]) => score * (LATER[page] || 1),
  objNameMatch: 11,
  objPartialMatch: 6,
  objPrio: { 0: 15, 1: 5, 2: -5 },
  objPrioDefault: 0,
  title: 15,
  partialTitle: 7,
  term: 5,
  partialTerm: 2,
};
