#include "lower/lower.hpp"
#include "lower/stages.hpp"

namespace syno::lower {

program::Program one_scope(const pgraph::CompleteGraph& graph) {
  const Coordinates coordinates(graph);
  StagePlan stage;
  stage.dims = coordinates.outputs;
  for (const std::size_t step : coordinates.reduces) stage.sums.push_back(coordinates.results[step].front());
  for (std::size_t f = 0; f < coordinates.factors.size(); ++f) stage.factors.push_back(f);
  return write_stages(coordinates, {stage});
}

}  // namespace syno::lower
