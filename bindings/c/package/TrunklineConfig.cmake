# find_package(Trunkline), then target_link_libraries(program Trunkline::trunkline); Trunkline::grpc++ adds gRPC C++'s own
# surface.
get_filename_component(_trunkline_prefix "${CMAKE_CURRENT_LIST_DIR}/@UP@" ABSOLUTE)
if(NOT TARGET Trunkline::trunkline)
  add_library(Trunkline::trunkline SHARED IMPORTED)
  set_target_properties(Trunkline::trunkline PROPERTIES
    IMPORTED_LOCATION "${_trunkline_prefix}/@LIBDIR@/libtrunkline.so.0"
    IMPORTED_SONAME "libtrunkline.so.0"
    INTERFACE_INCLUDE_DIRECTORIES "${_trunkline_prefix}/include")
  add_library(Trunkline::grpc++ INTERFACE IMPORTED)
  set_target_properties(Trunkline::grpc++ PROPERTIES
    INTERFACE_INCLUDE_DIRECTORIES "${_trunkline_prefix}/include/trunkline"
    # Generated messages are protobuf's: of a program that has found it.
    INTERFACE_LINK_LIBRARIES "Trunkline::trunkline;$<TARGET_NAME_IF_EXISTS:protobuf::libprotobuf>")
endif()
unset(_trunkline_prefix)
