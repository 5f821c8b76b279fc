// bindings/module.cpp — the Python module: exceptions here, one bind_<level>() a level beside it.
#include <pybind11/pybind11.h>

#include <new>
#include <stdexcept>

#include "bindings/unlocked.hpp"
#include "source_digest.hpp"  // generated
#include "support/error.hpp"
#include "support/interrupt.hpp"
#include "support/shown.hpp"

namespace py = pybind11;

void bind_program(py::module_& m);
void bind_builders(py::module_& m);
void bind_pgraph(py::module_& m);
void bind_lower(py::module_& m);
void bind_synth(py::module_& m);
void bind_named_operators(py::module_& m);
void bind_schedule(py::module_& m);
void bind_jit(py::module_& m);
void bind_cache(py::module_& m);
void bind_torch(py::module_& m);
void bind_emit(py::module_& m);
void bind_machine(py::module_& m);
void bind_tune(py::module_& m);
void bind_derive(py::module_& m);
void bind_graph(py::module_& m);
void bind_merging(py::module_& m);
void bind_layout(py::module_& m);

namespace {

/// Raises what a signal's handler raises: KeyboardInterrupt.
void bind_errors(py::module_& m) {
  static py::exception<syno::Error> base(m, "SynoError", PyExc_RuntimeError);
#define SYNO_BIND_ERROR(Name) static py::exception<syno::Name> error_##Name(m, #Name, base.ptr())
  SYNO_BIND_ERROR(ShapeError);
  SYNO_BIND_ERROR(ParseError);
  SYNO_BIND_ERROR(VerifyError);
  SYNO_BIND_ERROR(SpecError);
  SYNO_BIND_ERROR(ScheduleError);
  SYNO_BIND_ERROR(KernelError);
  SYNO_BIND_ERROR(FormatError);
  SYNO_BIND_ERROR(UnknownName);
#undef SYNO_BIND_ERROR
  py::register_exception_translator([](std::exception_ptr thrown) {
    if (!thrown) return;
    try {
      std::rethrow_exception(thrown);
#define SYNO_TRANSLATE(Name)        \
  }                                 \
  catch (const syno::Name& error) { \
    py::set_error(error_##Name, syno::shown_message(error.what()).c_str());
      SYNO_TRANSLATE(ShapeError)
      SYNO_TRANSLATE(ParseError)
      SYNO_TRANSLATE(VerifyError)
      SYNO_TRANSLATE(SpecError)
      SYNO_TRANSLATE(ScheduleError)
      SYNO_TRANSLATE(KernelError)
      SYNO_TRANSLATE(FormatError)
      SYNO_TRANSLATE(UnknownName)
#undef SYNO_TRANSLATE
    } catch (const syno::Error& error) {
      py::set_error(base, syno::shown_message(error.what()).c_str());
    } catch (const std::bad_alloc&) {
      py::set_error(error_ShapeError,
                    "[memory] the sizes ask for more memory than there is; use smaller ones");
    } catch (const std::length_error& error) {
      py::set_error(error_ShapeError,
                    "[memory] the sizes ask for more memory than can be named; use smaller ones");
    }
  });
}

/// Notebooks show of these what print() shows.
void show_in_notebooks(const py::module_& m) {
  for (const char* name : {"CompileReport", "Constructed", "Cost", "Cpu", "EnumerationResult", "LoopCode",
                           "GpuModel", "LoopNest", "MachineModel", "Measured", "MemoryLevel", "Prediction",
                           "Program", "Schedule", "Spec", "TritonKernel", "TritonText", "Verification"}) {
    const py::object kind = m.attr(name);
    const auto shown = [](const py::object& self) {
      return py::str("<pre>{}</pre>").format(py::module_::import("html").attr("escape")(py::str(self)));
    };
    kind.attr("_repr_html_") = py::cpp_function(shown, py::name("_repr_html_"), py::is_method(kind));
  }
}

}  // namespace

PYBIND11_MODULE(_core, m) {
  m.doc() = "The engine of syno: tensor programs, pGraphs, synthesis, schedules and native kernels.";
  m.def(
      "source_digest", [] { return kSourceDigest; },
      "A digest of the C++ sources that this engine was built from.");
  bind_errors(m);
  syno::set_interruption_handler(syno::bindings::check_signals);
  bind_program(m);
  bind_builders(m);
  bind_pgraph(m);
  bind_lower(m);
  bind_synth(m);
  bind_named_operators(m);
  bind_schedule(m);
  bind_jit(m);
  bind_cache(m);
  bind_torch(m);
  bind_emit(m);
  bind_machine(m);
  bind_tune(m);
  bind_derive(m);
  bind_graph(m);
  bind_merging(m);
  bind_layout(m);
  show_in_notebooks(m);
}
