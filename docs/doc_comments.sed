# Plain comments as Doxygen reads them: before a declaration (examples in them are indented), or behind one on its line.
s@^\( *\)//  \+\(.*\)@\1///     \2@
s@^\( *\)// \(.*\)@\1/// \2@
s@^\( *\)//$@\1///@
t
s@\([;,{]\) *// \(.*\)@\1  ///< \2@
