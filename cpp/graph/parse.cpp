// The text form of graphs: parsing, line by line.
#include <charconv>
#include <map>
#include <set>

#include "graph/text.hpp"
#include "program/text.hpp"
#include "support/json.hpp"
#include "support/shown.hpp"

namespace syno::graph {

namespace {

constexpr std::size_t kMaxText = std::size_t{256} << 20;
constexpr std::size_t kMaxNodes = 1'000'000;

class Parser {
 public:
  explicit Parser(std::string_view text) : text_(text) {}

  Graph run() {
    if (text_.size() > kMaxText)
      fail<ParseError>("parse", "the text has {} bytes; the limit is {}", text_.size(), kMaxText);
    if (!next_line()) wrong("the text is empty; it begins with `graph` and a name");
    expect_word("graph");
    Graph graph(name("a name"));
    end_line();
    bool returned = false;
    while (next_line()) {
      if (returned) wrong("nothing stands after `return`");
      const std::string_view keyword = word();
      if (keyword == "input" || keyword == "weight")
        declare(graph, keyword == "input");
      else if (keyword == "program")
        read_program();
      else if (keyword == "node" || keyword == "call")
        add_node(graph, keyword == "call");
      else if (keyword == "return")
        returned = read_outputs(graph);
      else
        wrong("a line begins with `input`, `weight`, `program`, `node`, `call` or `return`");
    }
    if (!returned) wrong("the text ends without `return`");
    for (const auto& [program_name, program] : programs_)
      if (!program.used) wrong(fmt::format("no node computes program {}", shown(program_name)));
    verify(graph);
    return graph;
  }

 private:
  struct Named {
    ProgramPointer program;
    bool used = false;
  };

  template <class E = ParseError>
  [[noreturn]] void wrong(std::string_view message) const {
    std::string shown_line = shown(line_, 100);
    throw E("parse", fmt::format("{} (line {}, column {})\n  {}", message, number_, at_ + 1, shown_line));
  }

  /// What a builder says, with the line it is about.
  template <class Build>
  auto at_line(Build&& build) const {
    const std::string where = fmt::format(" (line {})", number_);
    try {
      return build();
    } catch (const VerifyError& error) {
      throw VerifyError("parse", without_place(error) + where);
    } catch (const FormatError& error) {
      throw ParseError("parse", without_place(error) + where);
    } catch (const ParseError& error) {
      throw ParseError("parse", without_place(error) + where);
    } catch (const UnknownName& error) {
      throw ParseError("parse", without_place(error) + where);
    }
  }
  static std::string without_place(const Error& error) {
    const std::string_view what = error.what();
    const std::size_t end = what.find("] ");
    return std::string(end == std::string_view::npos ? what : what.substr(end + 2));
  }

  // Lines
  // ----------------------------------------------------------------------------------------------------

  bool raw_line() {
    if (position_ >= text_.size()) return false;
    const std::size_t end = std::min(text_.find('\n', position_), text_.size());
    line_ = text_.substr(position_, end - position_);
    position_ = end + 1;
    at_ = 0;
    ++number_;
    return true;
  }
  bool next_line() {
    while (raw_line())
      if (line_.find_first_not_of(' ') != std::string_view::npos) return true;
    return false;
  }
  void end_line() {
    skip();
    if (at_ != line_.size()) wrong("this is more than the line says");
  }

  // Tokens
  // ---------------------------------------------------------------------------------------------------

  void skip() {
    while (at_ < line_.size() && line_[at_] == ' ') ++at_;
  }
  bool is(char symbol) {
    skip();
    return at_ < line_.size() && line_[at_] == symbol;
  }
  bool take(char symbol) {
    if (!is(symbol)) return false;
    ++at_;
    return true;
  }
  void expect(char symbol) {
    if (!take(symbol)) wrong(fmt::format("expected `{}`", symbol));
  }
  std::string_view word() {
    skip();
    const std::size_t first = at_;
    const auto letter = [](char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; };
    const auto inner = [&](char c) { return letter(c) || (c >= '0' && c <= '9') || c == '.'; };
    if (at_ < line_.size() && letter(line_[at_]))
      while (at_ < line_.size() && inner(line_[at_])) ++at_;
    return line_.substr(first, at_ - first);
  }
  void expect_word(std::string_view wanted) {
    if (word() != wanted) wrong(fmt::format("expected `{}`", wanted));
  }
  /// A plain name, or one in quotes.
  std::string name(std::string_view what) {
    if (!is('"')) {
      const std::string_view plain = word();
      if (plain.empty()) wrong(fmt::format("expected {}", what));
      return std::string(plain);
    }
    const std::size_t end = end_of_string(at_);
    const auto parsed = nlohmann::json::parse(line_.substr(at_, end - at_), nullptr, false);
    if (!parsed.is_string()) wrong("this is no text in quotes");
    at_ = end;
    return parsed.get<std::string>();
  }
  /// One past the quote that ends the string which begins at `first`.
  std::size_t end_of_string(std::size_t first) const {
    for (std::size_t i = first + 1; i < line_.size(); ++i) {
      if (line_[i] == '\\')
        ++i;
      else if (line_[i] == '"')
        return i + 1;
    }
    wrong("a quote is never closed");
  }
  std::string_view json_object() {
    if (!is('{')) wrong("expected the attributes, a JSON object such as {}");
    const std::size_t first = at_;
    std::size_t depth = 0;
    while (at_ < line_.size()) {
      const char c = line_[at_];
      if (c == '"') {
        at_ = end_of_string(at_);
        continue;
      }
      if (c == '{') ++depth;
      ++at_;
      if (c == '}' && --depth == 0) return line_.substr(first, at_ - first);
    }
    wrong("a brace is never closed");
  }

  std::int64_t extent() {
    skip();
    std::int64_t value = 0;
    const char* begin = line_.data() + at_;
    const auto [end, error] = std::from_chars(begin, line_.data() + line_.size(), value);
    if (error != std::errc() || value < 0)
      wrong("expected an extent: an integer from 0 on that fits 64 bits");
    at_ += static_cast<std::size_t>(end - begin);
    return value;
  }

  /// `name: float32[1,3,8,8]`
  Tensor tensor() {
    Tensor made;
    made.name = name("the name of a tensor");
    expect(':');
    const std::string type(word());
    made.type = at_line([&] { return element_type_named(type); });
    expect('[');
    if (!take(']')) {
      made.shape = extents();
    }
    if (!is('o')) return made;
    expect_word("of");
    expect('[');
    if (!take(']')) made.elements = extents();
    expect_word("by");
    skip();
    const std::size_t first = at_;
    for (int depth = 0; at_ < line_.size() && (depth > 0 || line_[at_] != ','); ++at_)
      depth += line_[at_] == '(' ? 1 : line_[at_] == ')' ? -1 : 0;
    made.layout = at_line([&] { return schedule::parse_layout(line_.substr(first, at_ - first)); });
    if (made.layout.empty()) wrong("expected a layout, such as split(1, 4, 8)");
    return made;
  }
  /// Up to the bracket that closes them.
  Shape extents() {
    Shape shape;
    do shape.push_back(extent());
    while (take(','));
    expect(']');
    return shape;
  }

  std::vector<std::string> names() {
    expect('(');
    std::vector<std::string> found;
    if (take(')')) return found;
    do found.push_back(name("the name of a tensor"));
    while (take(','));
    expect(')');
    return found;
  }

  // Statements
  // -----------------------------------------------------------------------------------------------

  void declare(Graph& graph, bool input) {
    Tensor made = tensor();
    end_line();
    at_line([&] {
      const TensorId added = input ? graph.add_input(made.name, made.shape, made.type)
                                   : graph.add_weight(made.name, made.shape, made.type);
      graph.set_layout(added, made.layout, made.elements);
    });
  }

  void read_program() {
    const std::string program_name(word());
    if (program_name.empty()) wrong("expected the name of a program");
    expect('{');
    end_line();
    if (programs_.contains(program_name)) wrong(fmt::format("two programs are named {}", program_name));
    const std::size_t begin = number_;
    std::string body;
    for (;;) {
      if (!raw_line())
        wrong(fmt::format("program {}, from line {} on, is never closed", program_name, begin));
      if (line_ == "}") break;
      if (!line_.starts_with("  "))
        wrong("lines of a program begin with two spaces; it ends with a `}` alone");
      body += line_.substr(2);
      body += '\n';
    }
    const std::string where = fmt::format("program {} of line {}: ", shown(program_name), begin);
    try {
      program::ParseOptions options;
      programs_[program_name].program = shared_program(program::parse(body, options));
    } catch (const ParseError& error) {
      throw ParseError("parse", where + without_place(error));
    } catch (const Error& error) {
      throw VerifyError("parse", where + without_place(error));
    }
  }

  TensorId known(const Graph& graph, const std::string& tensor_name) {
    if (const auto found = graph.find_tensor(tensor_name)) return *found;
    wrong(
        fmt::format("nothing before computes '{}'; nodes stand in an order in which each reads what those "
                    "before it compute, and form no cycle",
                    shown(tensor_name)));
  }

  void add_node(Graph& graph, bool call) {
    if (graph.nodes().size() >= kMaxNodes) wrong(fmt::format("these are more than {} nodes", kMaxNodes));
    const std::string node_name = name("the name of a node");
    std::string function;
    std::string_view attributes;
    ProgramPointer program;
    if (call) {
      if (!is('"')) wrong("expected the function that is called, in quotes");
      function = name("a function");
      attributes = json_object();
    } else {
      expect('=');
      const std::string program_name(word());
      const auto found = programs_.find(program_name);
      if (found == programs_.end())
        wrong(fmt::format("no program before is named '{}'", shown(program_name)));
      found->second.used = true;
      program = found->second.program;
    }
    std::vector<TensorId> inputs;
    for (const std::string& input : names()) inputs.push_back(known(graph, input));
    expect('-');
    expect('>');
    std::vector<Tensor> results;
    do results.push_back(tensor());
    while (take(','));
    end_line();
    if (call) {
      for (const Tensor& result : results)
        if (!result.layout.empty()) wrong<VerifyError>("what a call computes is row-major");
      at_line([&] { return graph.add_call(node_name, function, attributes, inputs, results); });
      return;
    }
    std::vector<std::string> result_names;
    for (const Tensor& result : results) result_names.push_back(result.name);
    at_line([&] { return graph.add_program(node_name, program, inputs, result_names, results[0].type); });
    const Node& made = graph.nodes().back();
    for (std::size_t i = 0; i < results.size(); ++i)
      if (const Tensor& has = graph.tensor(made.outputs[i]);
          has.shape != results[i].shape || has.type != results[i].type)
        wrong<VerifyError>(fmt::format("'{}' is said to be {}, but the program computes {}",
                                       shown(results[i].name), described(results[i].shape, results[i].type),
                                       described(has.shape, has.type)));
    at_line([&] {
      for (std::size_t i = 0; i < results.size(); ++i)
        graph.set_layout(made.outputs[i], results[i].layout, results[i].elements);
    });
  }

  bool read_outputs(Graph& graph) {
    skip();
    if (at_ != line_.size()) {
      do graph.outputs.push_back(known(graph, name("the name of a tensor")));
      while (take(','));
    }
    end_line();
    return true;
  }

  std::string_view text_, line_;
  std::size_t position_ = 0, number_ = 0, at_ = 0;
  std::map<std::string, Named, std::less<>> programs_;
};

}  // namespace

Graph parse(std::string_view text) { return Parser(text).run(); }

}  // namespace syno::graph
